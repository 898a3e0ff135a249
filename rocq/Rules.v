(* The rules on one sample.  An instance of a rule is an equation between sides; here it is written as a side that is 0.

   A proof is a sum of such zeros, each times a side: left - right + sum_i times_i zero_i has the normal form 0.
   So neither order nor position of steps matters, and `part` and linearity need no rule. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting Ring Statements.
Import ListNotations.
Open Scope R_scope.

Inductive rule :=
| ChainRule (m : measure) (L : ep)                          (* E_m[grad L] = E_m[(dL/dlog q) s] *)
| StopGradient (m : measure) (a : ep) (k : nat)             (* outside of a gradient sg(x) = x *)
| LogDerivative (l : list gterm)                            (* grad c E_m[a] = c (E_m[grad a] + [m = q] E_q[a s]) *)
| ChangeOfMeasure (m n : measure) (a : ep) (k : nat)        (* E_m[a] = E_n[a m/n] *)
| ScoreMeanZero (c : ep)                                    (* E_q[c s] = 0 *)
| RatioMeanOne (m n : measure) (c : ep)                     (* E_m[c n/m] = E_m[c] *)
| Normalisation (m : measure) (c : ep)                      (* E_m[c] = c *)
| Premise (i : nat)                                         (* what is assumed at this theta *)
| PremiseGradient (i : nat)                                 (* what is assumed for every theta *)
| Cited (i : nat).                                          (* an earlier theorem *)

Record premises := Premises { equal_now : list (side * side); equal_always : list (list gterm * list gterm) }.

Definition attach : ep -> ep := emap (fun v => match v with Sample b _ => Sample b false | _ => v end).
Definition logd (m : measure) : lin :=
  let v b c := (c, [(Sample b false, 1%Z)]) in
  match m with
  | Mq => [v LogQ 1%Q] | Mp => [v LogQ 1%Q; v K1 (-1)%Q] | Mmu => [v LogQ 1%Q; v W (-1)%Q] | _ => [] end.
Definition lopp (e : lin) : lin := map (fun '(c, m) => (Qopp c, m)) e.
Definition ratio (m n : measure) : ep := exp_ (ladd (logd m) (lopp (logd n))).
Definition summed (m : measure) : bool := match m with Msample => false | _ => true end.
Definition probability (m : measure) : bool := match m with Mq | Mp | Mmu => true | _ => false end.
Definition guard {A} (b : bool) (a : A) : option A := if b then Some a else None.
Definition only (x : atom) : side := [(one, [x])].
Definition same (x : atom) (b : side) : side := only x ++ minus b.
Lemma Some_inj {A} (a b : A) : Some a = Some b -> a = b. Proof. now intros [=]. Qed.
Fixpoint log_derivative_side (l : list gterm) : side :=
  match l with
  | [] => []
  | (_, None) :: l => log_derivative_side l
  | (c, Some (m, a)) :: l =>
      match m with Mq => [(c, [Mean Mq a 1])] | _ => [] end ++ (c, [MeanGradient m a]) :: log_derivative_side l end.
Definition zero_of (pr : premises) (known : list side) (r : rule) : option side :=
  match r with
  | ChainRule m L => Some (same (MeanGradient m L) (only (Mean m (attach (derivative L)) 1)))
  | StopGradient m a k => Some (same (Mean m a k) (only (Mean m (attach a) k)))
  | LogDerivative l => Some (same (Gradient l) (log_derivative_side l))
  | ChangeOfMeasure m n a k =>
      guard (summed m && summed n) (same (Mean m a k) (only (Mean n (mul (tidy a) (ratio m n)) k)))
  | ScoreMeanZero c => guard (constant c) (only (Mean Mq c 1))
  | RatioMeanOne m n c =>
      guard (probability m && probability n && constant c)
        (same (Mean m (mul (tidy c) (ratio n m)) 0) (only (Mean m c 0)))
  | Normalisation m c => guard (normed m && constant c) (same (Mean m c 0) [(c, [])])
  | Premise i => option_map (fun '(a, b) => a ++ minus b) (nth_error (equal_now pr) i)
  | PremiseGradient i =>
      option_map (fun '(a, b) => same (Gradient a) (only (Gradient b))) (nth_error (equal_always pr) i)
  | Cited i => nth_error known i end.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok). Notation penv_ok := (penv_ok par par_ok).

Definition holds (pr : premises) : Prop :=
  (forall a b, In (a, b) (equal_now pr) -> dside a = dside b) /\
  (forall a b, In (a, b) (equal_always pr) -> forall t, moved S par a t = moved S par b t).

Lemma only_ok x : dside (only x) = datom x.
Proof. cbn [only Statements.dside dproduct]. rewrite one_ok by apply penv_ok. ring. Qed.
Lemma same_ok x b : datom x = dside b -> dside (same x b) = 0.
Proof. intros H. unfold same. rewrite app_ok, (minus_ok S par par_ok), only_ok, H. ring. Qed.
Lemma attach_ok x a : den (env x) (attach a) = den (env x) a.
Proof. apply emap_ok; [apply env_ok|now intros [[| | | | |] []|]|now intros [[]|]]. Qed.
Lemma val_derive x v l f : is_derive (fun l => val S par v l f x) l
  (match slope v with Some d => dmon (fun v => val S par v l f x) d | None => 0 end).
Proof.
  destruct v as [[| | | | |i d] []|]; cbn [slope val dmon];
    try apply derive_const; unfold k1_at, w_at; try (auto_derive; [easy|ring]).
  rewrite power_1, Rmult_1_r. apply fn_diff.
Qed.
Lemma loss_derive a x : is_derive (fun l => as_loss S par a l (ln (q0 S x)) x) (ln (q0 S x))
  (den (env x) (derivative a)).
Proof.
  apply (derive_by_ok slope slope_inv (fun v l => val S par v l (ln (q0 S x)) x)).
  - intros v l H. now apply val_ok.
  - intros v. apply val_derive.
Qed.
Lemma grad_derive a x : is_derive (fun t => as_loss S par a (ln (q S t x)) (ln (q0 S x)) x) (theta S)
  (den (env x) (derivative a) * s S x).
Proof. apply chain_rule, loss_derive. Qed.
Lemma grad_ok a x : grad S (as_loss S par a) x = den (env x) (derivative a) * s S x.
Proof. apply is_derive_unique, grad_derive. Qed.
Lemma moving_derive m a : is_derive (moving S par m a) (theta S)
  (datom (MeanGradient m a) + match m with Mq => datom (Mean Mq a 1) | _ => 0 end).
Proof.
  pose proof (log_derivative S m _ _ (grad_derive a)) as D.
  match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
  cbn [Statements.datom]. rewrite Rplus_comm. f_equal.
  - apply E_ext; intros x. now rewrite grad_ok.
  - destruct m; try reflexivity. apply E_ext; intros x. rewrite pow_1. reflexivity.
Qed.
Lemma log_derivative_ok l : is_derive (moved S par l) (theta S) (dside (log_derivative_side l)).
Proof.
  induction l as [|[c [[m a]|]] l IH]; cbn [log_derivative_side moved Statements.dside].
  - apply derive_const.
  - rewrite app_ok. cbn [Statements.dside dproduct].
    pose proof (derive_plus _ _ _ _ _ (derive_scal _ (den (penv par) c) _ _ (moving_derive m a)) IH) as D.
    match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
    destruct m; cbn [Statements.dside dproduct]; ring.
  - pose proof (derive_plus _ _ _ _ _ (derive_const (den (penv par) c) (theta S)) IH) as D.
    rewrite Rplus_0_l in D. exact D.
Qed.
Lemma logd_ok m x : summed m = true -> dlin (env x) (logd m) = ln (density S m (theta S) x).
Proof.
  pose proof Q2R_1 as A. pose proof Q2R_m1 as B.
  destruct m; try discriminate; intros _; cbn [logd dlin dmon]; rewrite ?power_1, ?A, ?B; cbn [density];
    cbn; unfold k1_at, w_at; rewrite ?ln_1; unfold q0; ring.
Qed.
Lemma lopp_ok e v : dlin v (lopp e) = - dlin v e.
Proof. induction e as [|[c m] e IH]; cbn [lopp map dlin]; [ring|]. fold (lopp e). rewrite IH, Q2R_opp; ring. Qed.
Lemma ratio_ok m n x : summed m = true -> summed n = true ->
  den (env x) (ratio m n) = density S m (theta S) x / density S n (theta S) x.
Proof.
  intros M N. unfold ratio. rewrite exp_ok, ladd_ok, lopp_ok, !logd_ok by easy.
  rewrite exp_plus, exp_Ropp, !exp_ln by apply density_pos. reflexivity.
Qed.
Lemma constant_env a x : constant a = true -> den (env x) a = den (penv par) a.
Proof. apply within_ok. intros v. apply env_penv. Qed.
Lemma mean_constant m c : normed m = true -> constant c = true -> datom (Mean m c 0) = den (penv par) c.
Proof.
  intros N C. rewrite <- (normalisation S m (den (penv par) c) N). apply E_ext; intros x.
  rewrite (constant_env c x C). ring.
Qed.

Theorem zero_of_ok pr known r z : holds pr -> List.Forall (fun a => dside a = 0) known ->
  zero_of pr known r = Some z -> dside z = 0.
Proof.
  intros [P1 P2] K. destruct r; cbn [zero_of]; unfold guard; intros H.
  - apply Some_inj in H; subst z. apply same_ok. rewrite only_ok. cbn [Statements.datom]. apply E_ext; intros x.
    rewrite grad_ok, attach_ok. ring.
  - apply Some_inj in H; subst z. apply same_ok. rewrite only_ok. cbn [Statements.datom]. apply E_ext; intros x.
    now rewrite attach_ok.
  - apply Some_inj in H; subst z. apply same_ok. cbn [Statements.datom]. apply is_derive_unique, log_derivative_ok.
  - destruct (summed m && summed n)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G1 G2]. apply same_ok. rewrite only_ok. cbn [Statements.datom].
    rewrite (change_of_measure S m n) by (intros ->; discriminate). apply E_ext; intros x.
    rewrite mul_ok, tidy_ok, ratio_ok by first [easy|apply env_ok]. ring.
  - destruct (constant c) eqn:C; [|discriminate]. apply Some_inj in H; subst z. rewrite only_ok. cbn [Statements.datom].
    unfold mean. rewrite (E_ext S Mq _ _ (fun x => den (penv par) c * s S x)).
    + rewrite E_scal. fold (mean S Mq (s S)). rewrite score_mean_zero. ring.
    + intros x. rewrite (constant_env c x C). ring.
  - destruct (probability m && probability n && constant c)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G C]. apply andb_prop in G as [G1 G2].
    assert (Sm : summed m = true) by now destruct m. assert (Sn : summed n = true) by now destruct n.
    apply same_ok. rewrite only_ok, (mean_constant m c) by first [easy|now destruct m].
    rewrite <- (mean_constant n c) by first [easy|now destruct n]. cbn [Statements.datom].
    rewrite (change_of_measure S n m) by (intros ->; discriminate). apply E_ext; intros x.
    rewrite mul_ok, tidy_ok, ratio_ok by first [easy|apply env_ok]. ring.
  - destruct (normed m && constant c)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G C]. apply same_ok. rewrite (mean_constant m c) by easy.
    cbn [Statements.dside dproduct]. ring.
  - destruct (nth_error (equal_now pr) i) as [[a b]|] eqn:N; [|discriminate]. apply Some_inj in H; subst z.
    apply nth_error_In in N. rewrite app_ok, (minus_ok S par par_ok), (P1 _ _ N). ring.
  - destruct (nth_error (equal_always pr) i) as [[a b]|] eqn:N; [|discriminate]. apply Some_inj in H; subst z.
    apply nth_error_In in N. apply same_ok. rewrite only_ok. cbn [Statements.datom].
    apply Derive_ext. apply (P2 _ _ N).
  - rewrite List.Forall_forall in K. apply K. eapply nth_error_In, H.
Qed.

(* a sum of zeros *)
Fixpoint zeros (pr : premises) (known : list side) (l : list (side * rule)) : option side :=
  match l with
  | [] => Some []
  | (f, r) :: l =>
      match zero_of pr known r, zeros pr known l with
      | Some z, Some rest => Some (stimes f z ++ rest) | _, _ => None end end.
Lemma zeros_ok pr known l z : holds pr -> List.Forall (fun a => dside a = 0) known ->
  zeros pr known l = Some z -> dside z = 0.
Proof.
  intros P K. revert z; induction l as [|[f r] l IH]; intros z; cbn [zeros].
  - now intros [= <-].
  - destruct (zero_of pr known r) eqn:Z; [|discriminate]. destruct (zeros pr known l); [|discriminate].
    intros [= <-]. rewrite app_ok, stimes_ok, (zero_of_ok _ _ _ _ P K Z), (IH _ eq_refl) by exact par_ok. ring.
Qed.
End Soundness.
