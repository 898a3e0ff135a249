(* The rules.  An instance of a rule is an equation between sides; here it is written as a side that is 0.

   A proof is a sum of such zeros, each times a side: left - right + sum_i times_i zero_i has the normal form 0.
   So neither order nor position of steps matters, and `part` and linearity need no rule. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting Ring Statements.
Import ListNotations.
Open Scope R_scope.

Inductive rule :=
| ChainRule (i : index) (m : measure) (L : ep)              (* E_m[grad L] = sum_z E_m[(dL/dlog q_z) s_z] *)
| StopGradient (i : index) (m : measure) (a : ep)           (* outside of a gradient sg(x) = x *)
| LogDerivative (l : list gterm)                            (* grad c E_m[a] = c (E_m[grad a] + [m = q] sum_z E_q[a s_z]) *)
| ChangeOfMeasure (i : index) (m n : measure) (a : ep)      (* E_m[a] = E_n[a m/n], slot by slot *)
| ScoreMeanZero (i : index) (z : slot) (c : ep)             (* E_q[c s_z] = 0 where c does not speak of z *)
| RatioMeanOne (i : index) (z : slot) (m n : measure) (c : ep)   (* E_m[c (n/m)_z] = E_m[c] likewise *)
| Normalisation (i : index) (m : measure) (c : ep)          (* E_m[c] = c *)
| Independence (i : index) (m : measure) (t : term)         (* E_m[a(self) b(others)] = E_m[a] E_m[b], and the moments of sums *)
| Premise (i : nat)                                         (* what is assumed at this theta *)
| PremiseGradient (i : nat)                                 (* what is assumed for every theta *)
| Cited (i : nat).                                          (* an earlier theorem *)

Record premises := Premises {
  equal_now : list (side * side); equal_always : list (list gterm * list gterm);
  batch_size : option (nat * bool) }.  (* the parameter n *)

Definition attach : ep -> ep := emap (fun v => match v with Sample z b _ => Sample z b false | _ => v end).
Definition logd (z : slot) (m : measure) : lin :=
  let v b c := (c, [(Sample z b false, 1%Z)]) in
  match m with
  | Mq => [v LogQ 1%Q] | Mp => [v LogQ 1%Q; v K1 (-1)%Q] | Mmu => [v LogQ 1%Q; v W (-1)%Q] | _ => [] end.
Definition lopp (e : lin) : lin := map (fun '(c, m) => (Qopp c, m)) e.
Definition log_ratio (z : slot) (m n : measure) : lin := ladd (logd z m) (lopp (logd z n)).
Definition ratio_at (z : slot) (m n : measure) : ep := exp_ (log_ratio z m n).
Definition ratio (i : index) (m n : measure) : ep :=
  exp_ (fold_right (fun z acc => ladd (log_ratio z m n) acc) [] (slots i)).
Definition guard {A} (b : bool) (a : A) : option A := if b then Some a else None.
Definition only (x : atom) : side := [(one, [x])].
Definition same (x : atom) (b : side) : side := only x ++ minus b.
Lemma Some_inj {A} (a b : A) : Some a = Some b -> a = b. Proof. now intros [=]. Qed.
(* the gradient of a sum of functions over several positions is no multiple of their score function *)
Definition steady (v : var) : bool := match v with Sample z (Fn _ _) false => one_position z | _ => true end.
Definition smooth : ep -> bool := within steady.
Definition at_slots (g : slot -> bool) (v : var) : bool := match v with Sample z _ _ => g z | Par _ _ => true end.
Definition avoids (z : slot) : ep -> bool := within (at_slots (except (same_slot z))).
Definition among (z : slot) (i : index) : bool := existsb (same_slot z) (slots i).
Fixpoint log_derivative_side (l : list gterm) : option side :=
  match l with
  | [] => Some []
  | (_, None) :: l => log_derivative_side l
  | (c, Some (i, m, a)) :: l =>
      match log_derivative_side l with
      | Some rest => guard (smooth a)
          (match m with Mq => map (fun z => (c, [Mean i Mq (mul (tidy a) (var_ (score z)))])) (slots i) | _ => [] end
            ++ (c, [MeanGradient i m a]) :: rest)
      | None => None end end.

(* ---------- independence ---------- *)
(* a term as its factor in one slot, and the rest *)
Definition at_slot (z : slot) (v : var) : bool := match v with Sample y _ _ => same_slot z y | Par _ _ => false end.
Definition elsewhere (z : slot) (v : var) : bool := at_slots (except (same_slot z)) v.
Definition cut (z : slot) (t : term) : term * term :=
  let '(c, m, e) := t in
  ((1%Q, filter (fun '(v, _) => at_slot z v) m, filter (fun '(_, k) => negb (mwithin (elsewhere z) k)) e),
   (c, filter (fun '(v, _) => negb (at_slot z v)) m, filter (fun '(_, k) => mwithin (elsewhere z) k) e)).
(* what is the same of one position in a slot as of a single sample *)
Definition movable (z : slot) (v : var) : bool :=
  match v with Sample y Length _ => false | Sample y _ _ => same_slot z y | Par _ _ => true end.
Definition to_whole (v : var) : var :=
  match v with Sample _ Length _ | Par _ _ => v | Sample _ b _ => Sample Whole b false end.
Definition moved_there (v : var) : bool := match v with Sample Whole _ false | Par _ _ => true | _ => false end.
Definition adds_up (z : slot) (v : var) : bool :=
  match v with Sample _ Length _ | Sample _ Any _ | Par _ _ => false | Sample y _ _ => same_slot z y end.
Fixpoint factors (z : slot) (m : mon) : option (list var) :=
  match m with
  | [] => Some []
  | (v, k) :: m =>
      match adds_up z v, k, factors z m with
      | true, 1%Z, Some l => Some (to_whole v :: l) | true, 2%Z, Some l => Some (to_whole v :: to_whole v :: l)
      | _, _, _ => None end end.
Definition positions (pr : premises) (i : index) (z : slot) : option ep :=   (* n - 1, n - 2 *)
  match batch_size pr, i, z with
  | Some (j, nz), Batch, Others => Some (sub (var_ (Par j nz)) (konst 1))
  | Some (j, nz), Pair, Rest => Some (sub (var_ (Par j nz)) (konst 2))
  | _, _, _ => None end.
Definition one_slot (pr : premises) (i : index) (m : measure) (z : slot) (t : term) : option side :=
  if one_position z then
    let a := emap to_whole [t] in
    guard (within (movable z) [t] && within moved_there a) [(one, [Mean Single m a])]
  else match t, positions pr i z with
    | (c, k, []), Some n =>
        match qz (Qred (c - 1)), factors z k with
        | true, Some [] => Some [(one, [])]
        | true, Some [a] => Some [(n, [Mean Single m (var_ a)])]
        | true, Some [a; b] => Some [(n, [Mean Single m (mul (var_ a) (var_ b))]);
            (mul n (sub n one), [Mean Single m (var_ a); Mean Single m (var_ b)])]
        | _, _ => None end
    | _, _ => None end.
Fixpoint by_slots (pr : premises) (i : index) (m : measure) (zs : list slot) (t : term) : option side :=
  match zs with
  | [] => guard (constant [t]) [([t], [])]
  | z :: zs =>
      let '(a, b) := cut z t in
      match one_slot pr i m z a, by_slots pr i m zs b with
      | Some x, Some y => guard (within (at_slots (same_slot z)) [a] && avoids z [b]) (stimes x y)
      | _, _ => None end end.

Definition zero_of (pr : premises) (known : list side) (r : rule) : option side :=
  match r with
  | ChainRule i m L => guard (smooth L) (same (MeanGradient i m L) (only (Mean i m (attach (derivative L)))))
  | StopGradient i m a => Some (same (Mean i m a) (only (Mean i m (attach a))))
  | LogDerivative l => option_map (same (Gradient l)) (log_derivative_side l)
  | ChangeOfMeasure i m n a =>
      guard (summed m && summed n) (same (Mean i m a) (only (Mean i n (mul (tidy a) (ratio i m n)))))
  | ScoreMeanZero i z c => guard (among z i && avoids z c) (only (Mean i Mq (mul (tidy c) (var_ (score z)))))
  | RatioMeanOne i z m n c =>
      guard (probability m && probability n && among z i && avoids z c)
        (same (Mean i m (mul (tidy c) (ratio_at z n m))) (only (Mean i m c)))
  | Normalisation i m c => guard (normed m && constant c) (same (Mean i m c) [(c, [])])
  | Independence i m t =>
      if probability m then option_map (same (Mean i m [t])) (by_slots pr i m (slots i) t) else None
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
  (forall a b, In (a, b) (equal_always pr) -> forall t, moved S par a t = moved S par b t) /\
  (forall j nz, batch_size pr = Some (j, nz) -> par j nz = INR (size S)).

Lemma only_ok x : dside (only x) = datom x.
Proof. cbn [only Statements.dside dproduct]. rewrite one_ok by apply penv_ok. ring. Qed.
Lemma same_ok x b : datom x = dside b -> dside (same x b) = 0.
Proof. intros H. unfold same. rewrite app_ok, (minus_ok S par par_ok), only_ok, H. ring. Qed.
Lemma env_sg w z b sg sg' : env w (Sample z b sg) = env w (Sample z b sg').
Proof. unfold Statements.env. destruct z, b, sg, sg'; reflexivity. Qed.
Lemma attach_ok w a : den (env w) (attach a) = den (env w) a.
Proof. apply emap_ok; [apply env_ok|intros [z b sg|]; [apply env_sg|reflexivity]|now intros [[] [] ?|]]. Qed.
Lemma env_sum w z b sg : b <> Length -> b <> Any ->
  env w (Sample z b sg) = Sum (w z) (fun x => each S b (ln (q0 S x)) x).
Proof. intros. unfold Statements.env. destruct z, b, sg; try easy. Qed.

(* ---------- derivatives ---------- *)
Definition still (v : var) (t : R) (w : world S) : R := if steady v then val S par v t w else val S par v (theta S) w.
Lemma val_now w v : val S par v (theta S) w = env w v. Proof. reflexivity. Qed.
Lemma sum_derive (l : list (outcome S)) (f f' : R -> outcome S -> R) :
  (forall y x, is_derive (fun l => f l x) y (f' y x)) ->
  is_derive (fun t => Sum l (fun x => f (ln (q S t x)) x)) (theta S) (Sum l (fun x => f' (ln (q0 S x)) x * s S x)).
Proof.
  intros H. apply (Sum_derive l (fun t x => f (ln (q S t x)) x)). intros x _.
  apply (derive_comp (fun l => f l x) (fun t => ln (q S t x))); [apply H|apply s_derive].
Qed.
Lemma log_derive (l : list (outcome S)) (c : outcome S -> R) :
  is_derive (fun t => Sum l (fun x => ln (q S t x) - c x)) (theta S) (Sum l (s S)).
Proof.
  rewrite (Sum_ext l (s S) (fun x => 1 * s S x)) by (intros; ring).
  apply (sum_derive l (fun y x => y - c x) (fun _ _ => 1)). intros y x. auto_derive; [easy|ring].
Qed.
Definition few (w : world S) : Prop := forall z, one_position z = true -> (List.length (w z) <= 1)%nat.
Lemma still_slope v w : few w -> is_derive (fun t => still v t w) (theta S)
  (match slope v with Some d => dmon (fun v => still v (theta S) w) d | None => 0 end).
Proof.
  intros W. destruct v as [z b sg|j nz];
    [|apply (is_derive_ext (fun _ => par j nz)); [reflexivity|cbn [slope]; apply derive_const]]. destruct sg.
  - apply (is_derive_ext (fun _ => val S par (Sample z b true) (theta S) w)).
    + intros t. unfold still. destruct z, b; reflexivity.
    + destruct b; cbn [slope]; apply derive_const.
  - assert (C : (forall t, still (Sample z b false) t w = val S par (Sample z b false) (theta S) w) ->
      is_derive (fun t => still (Sample z b false) t w) (theta S) 0).
    { intros K. apply (is_derive_ext (fun _ => val S par (Sample z b false) (theta S) w)); [intros; symmetry; apply K|apply derive_const]. }
    assert (D : dmon (fun v => still v (theta S) w) [(score z, 1%Z)] = Sum (w z) (s S)).
    { unfold score, still. cbn [dmon steady]. rewrite power_1, Rmult_1_r. destruct z; reflexivity. }
    destruct b as [| | | | | |i|i d]; cbn [slope]; try (apply C; intros t; destruct z; reflexivity).
    + rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - ln (p S x)))); [intros t; destruct z; reflexivity|apply log_derive].
    + rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - ln (mu S x)))); [intros t; destruct z; reflexivity|apply log_derive].
    + rewrite D. apply (is_derive_ext (fun t => Sum (w z) (fun x => ln (q S t x) - 0))); [|apply (log_derive (w z) (fun _ => 0))].
      intros t. rewrite (Sum_ext (w z) _ (fun x => ln (q S t x))) by (intros; ring). destruct z; reflexivity.
    + destruct (one_position z) eqn:O; [|apply C; intros t; unfold still; cbn [steady]; rewrite O; reflexivity].
      pose proof (sum_derive (w z) (fun y x => fn S i d y x) (fun y x => fn S i (Datatypes.S d) y x) (fun y x => fn_diff S i d y x)) as F.
      apply (is_derive_ext (fun t => Sum (w z) (fun x => fn S i d (ln (q S t x)) x))).
      { intros t. unfold still. cbn [steady]. rewrite O. destruct z; reflexivity. }
      replace (dmon _ _) with (Sum (w z) (fun x => fn S i (Datatypes.S d) (ln (q0 S x)) x * s S x)); [exact F|].
      transitivity (Sum (w z) (s S) * Sum (w z) (fun x => fn S i (Datatypes.S d) (ln (q0 S x)) x)).
      * specialize (W z O). destruct (w z) as [|x [|y l]]; cbn [Sum List.length] in *; [ring|ring|lia].
      * unfold score, still. cbn [dmon steady]. rewrite O, !power_1, Rmult_1_r. destruct z; reflexivity.
Qed.
Lemma still_loss a t w : smooth a = true -> as_loss S par a t w = den (fun v => still v t w) a.
Proof. intros H. apply (within_ok steady); [|exact H]. intros v V. unfold still. now rewrite V. Qed.
Lemma loss_derive a w : smooth a = true -> few w ->
  is_derive (fun t => as_loss S par a t w) (theta S) (den (env w) (derivative a)).
Proof.
  intros H W. apply (is_derive_ext (fun t => den (fun v => still v t w) a)); [intros; now rewrite still_loss|].
  replace (den (env w) (derivative a)) with (den (fun v => still v (theta S) w) (derivative a)).
  - apply (derive_by_ok slope slope_inv (fun v t => still v t w)).
    + intros v t I. unfold still. destruct (steady v); now apply val_ok.
    + intros v. now apply still_slope.
  - apply den_ext. intros v. unfold still. now destruct (steady v).
Qed.
Lemma drawn_few i w : drawn S (draws i (size S)) w -> few w.
Proof.
  intros D z O. rewrite (D z). unfold count.
  assert (K : forall y n, one_position y = false -> filter (same_slot z) (repeat y n) = []).
  { intros y n Y. induction n as [|n IH]; [reflexivity|]. cbn [repeat filter].
    destruct (same_slot z y) eqn:Q; [apply same_slot_eq in Q; congruence|exact IH]. }
  destruct i, z; try discriminate; cbn [draws filter]; cbn; rewrite ?K by reflexivity; cbn; lia.
Qed.
Lemma grad_ok i m a : smooth a = true -> mean S m i (grad S (as_loss S par a)) = mean S m i (fun w => den (env w) (derivative a)).
Proof.
  intros H. apply E_drawn. intros w D. apply is_derive_unique, loss_derive; [exact H|apply (drawn_few i w D)].
Qed.
Lemma mean_total i m a : mean S m i (fun w => den (env w) a * total S (slots i) (s S) w) =
  dside (map (fun z => (one, [Mean i m (mul (tidy a) (var_ (score z)))])) (slots i)).
Proof.
  unfold total. induction (slots i) as [|z zs IH]; cbn [map Statements.dside Sum].
  - unfold mean, mean_at. rewrite (E_ext S m _ _ _ _ (fun _ => 0)) by (intros; cbn [Sum]; ring). apply E_zero.
  - rewrite <- IH. rewrite one_ok. cbn [dproduct Statements.datom]. rewrite Rmult_1_l, Rmult_1_r. unfold mean, mean_at. rewrite <- E_plus.
    apply E_ext; intros w. rewrite mul_ok, tidy_ok, var_ok by apply env_ok. unfold score. rewrite env_sum by easy. cbn [each].
    change (fun x => s S x) with (s S). ring.
Qed.
Lemma scaled_ok c l : dside (map (fun x => (c, [x])) l) = den (penv par) c * dside (map (fun x => (one, [x])) l).
Proof. induction l as [|x l IH]; cbn [map Statements.dside dproduct]; [ring|]. rewrite IH, one_ok. ring. Qed.
Lemma moving_derive i m a : smooth a = true -> is_derive (moving S par i m a) (theta S)
  (datom (MeanGradient i m a) + match m with Mq => dside (map (fun z => (one, [Mean i Mq (mul (tidy a) (var_ (score z)))])) (slots i)) | _ => 0 end).
Proof.
  intros H. pose proof (E_derive S m 0 (draws i (size S)) (slots i) (as_loss S par a) (fun w => den (env w) (derivative a))
    (slots_once i) (draws_in i (size S)) (fun w D => loss_derive a w H (drawn_few i w D))) as D.
  match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
  cbn [Statements.datom]. rewrite (grad_ok i m a H). unfold mean, mean_at. rewrite E_plus. f_equal.
  destruct m; try apply E_zero. rewrite <- mean_total. reflexivity.
Qed.
Lemma log_derivative_ok l z : log_derivative_side l = Some z -> is_derive (moved S par l) (theta S) (dside z).
Proof.
  revert z; induction l as [|[c [[[i m] a]|]] l IH]; intros z; cbn [log_derivative_side moved].
  - intros H. apply Some_inj in H; subst z. apply derive_const.
  - destruct (log_derivative_side l) as [rest|]; [|discriminate]. unfold guard. destruct (smooth a) eqn:Sm; [|discriminate].
    intros H. apply Some_inj in H; subst z. rewrite app_ok. cbn [Statements.dside dproduct].
    pose proof (derive_plus _ _ _ _ _ (derive_scal _ (den (penv par) c) _ _ (moving_derive i m a Sm)) (IH _ eq_refl)) as D.
    match type of D with is_derive _ _ ?d => match goal with |- is_derive _ _ ?e => replace e with d; [exact D|] end end.
    destruct m; cbn [Statements.dside]; try ring.
    rewrite <- (map_map (fun z => Mean i Mq (mul (tidy a) (var_ (score z)))) (fun x => (c, [x]))).
    rewrite scaled_ok, map_map. ring.
  - intros H. pose proof (derive_plus _ _ _ _ _ (derive_const (den (penv par) c) (theta S)) (IH z H)) as D.
    rewrite Rplus_0_l in D. exact D.
Qed.

(* ---------- densities ---------- *)
Lemma Sum_minus {X} (l : list X) f g : Sum l (fun x => f x - g x) = Sum l f - Sum l g.
Proof. induction l as [|x l IH]; cbn [Sum]; [ring|rewrite IH; ring]. Qed.
Lemma logd_ok z m w : summed m = true -> dlin (env w) (logd z m) = Sum (w z) (fun x => ln (density S m (theta S) x)).
Proof.
  pose proof Q2R_1 as A. pose proof Q2R_m1 as B.
  destruct m; try discriminate; intros _; cbn [logd dlin dmon]; rewrite ?power_1, ?A, ?B, ?env_sum by easy; cbn [each density].
  - unfold q0. ring.
  - rewrite Sum_minus. unfold q0. ring.
  - rewrite Sum_minus. unfold q0. ring.
  - rewrite (Sum_ext (w z) _ (fun _ => 0)) by (intros; apply ln_1). now rewrite Sum_zero.
Qed.
Lemma lopp_ok e v : dlin v (lopp e) = - dlin v e.
Proof. induction e as [|[c m] e IH]; cbn [lopp map dlin]; [ring|]. fold (lopp e). rewrite IH, Q2R_opp; ring. Qed.
Notation log_of m n := (fun x => ln (density S m (theta S) x) - ln (density S n (theta S) x)).
Lemma log_ratio_ok z m n w : summed m = true -> summed n = true -> dlin (env w) (log_ratio z m n) = Sum (w z) (log_of m n).
Proof. intros M N. unfold log_ratio. rewrite ladd_ok, lopp_ok, !logd_ok, Sum_minus by easy. ring. Qed.
Lemma ratio_ok i m n w : summed m = true -> summed n = true ->
  den (env w) (ratio i m n) = exp (total S (slots i) (log_of m n) w).
Proof.
  intros M N. unfold ratio. rewrite exp_ok. f_equal. unfold total.
  induction (slots i) as [|z zs IH]; cbn [fold_right Sum]; [reflexivity|]. rewrite ladd_ok, log_ratio_ok, IH by easy. reflexivity.
Qed.
Lemma speaks_within g a : within (at_slots g) a = true -> speaks_of S g (fun w => den (env w) a).
Proof.
  intros H w v A. apply (within_ok (at_slots g)); [|exact H]. intros [z b sg|j nz] Z; [|reflexivity].
  cbn in Z. unfold Statements.env. specialize (A z Z). destruct z, b; cbn [val]; now rewrite A.
Qed.
Lemma among_in z i : among z i = true -> In z (slots i).
Proof. intros H. apply existsb_exists in H as [y [Y Q]]. apply same_slot_eq in Q. now subst. Qed.
Lemma constant_env a w : constant a = true -> den (env w) a = den (penv par) a.
Proof. apply within_ok. intros v. apply env_penv. Qed.
Lemma mean_constant i m c : normed m = true -> constant c = true -> datom (Mean i m c) = den (penv par) c.
Proof.
  intros N C. rewrite <- (E_const S m 0 (draws i (size S)) (den (penv par) c) N). apply E_ext; intros w. now apply constant_env.
Qed.
Lemma only_slot_ok z i m (F G : world S -> R) : probability m = true -> speaks_of S (same_slot z) F -> speaks_of S (except (same_slot z)) G ->
  mean S m i (fun w => G w * F w) = mean S m i F * mean S m i G.
Proof.
  intros M HF HG. assert (U : summed m = true) by now destruct m. unfold mean, mean_at.
  rewrite (E_ext S m _ _ _ _ (fun w => F w * G w)) by (intros; ring).
  rewrite (independent S m _ _ (same_slot z) _ F G U HF HG).
  rewrite <- (only_of S m 0 (same_slot z) _ G M HG). f_equal.
  assert (X : forall ds, filter (except (except (same_slot z))) ds = filter (same_slot z) ds).
  { intros ds. apply filter_ext. intros y. unfold except. apply negb_involutive. }
  rewrite (only_of S m 0 (except (same_slot z)) (draws i (size S)) F M).
  - now rewrite X.
  - intros w v A. apply HF. intros y Y. apply A. unfold except. now rewrite Y.
Qed.
Lemma speaks_sum z (f : outcome S -> R) : speaks_of S (same_slot z) (fun w => Sum (w z) f).
Proof. intros w v A. now rewrite (A z (same_slot_refl z)). Qed.
Lemma ratio_mean_one z i m n : probability m = true -> probability n = true ->
  mean S m i (fun w => exp (Sum (w z) (log_of n m))) = 1.
Proof.
  intros M N. assert (U : summed m = true) by now destruct m. assert (V : summed n = true) by now destruct n.
  unfold mean, mean_at.
  rewrite (only_of S m 0 (except (same_slot z)) (draws i (size S)) _ M).
  2:{ intros w v A. now rewrite (A z) by (unfold except; now rewrite same_slot_refl). }
  rewrite (filter_ext _ (same_slot z)) by (intros y; unfold except; apply negb_involutive).
  set (ds := filter _ _). transitivity (E S n (theta S) 0 ds (fun _ => 1)).
  - rewrite (change_of_measure S n m 0 ds [z] (fun _ => 1)); [|repeat constructor; easy| |exact V|exact U].
    + apply E_ext; intros w. unfold total. cbn [Sum]. rewrite Rplus_0_r. ring.
    + intros y Y. apply filter_In in Y as [_ Y]. apply same_slot_eq in Y. subst. now left.
  - apply E_const. now destruct n.
Qed.

(* ---------- independence ---------- *)
Lemma dmon_filter e f m : dmon e m = dmon e (filter (fun '(v, _) => f v) m) * dmon e (filter (fun '(v, _) => negb (f v)) m).
Proof. induction m as [|[v k] m IH]; cbn [filter dmon]; [ring|]. rewrite IH. destruct (f v); cbn [negb dmon]; ring. Qed.
Lemma dlin_filter e f l : dlin e l = dlin e (filter (fun '(_, k) => negb (f k)) l) + dlin e (filter (fun '(_, k) => f k) l).
Proof. induction l as [|[c m] l IH]; cbn [filter dlin]; [ring|]. rewrite IH. destruct (f m); cbn [negb dlin]; ring. Qed.
Lemma cut_ok e z t : dterm e t = dterm e (fst (cut z t)) * dterm e (snd (cut z t)).
Proof.
  destruct t as [[c m] l]. cbn [cut fst snd dterm].
  rewrite (dmon_filter e (at_slot z) m), (dlin_filter e (mwithin (elsewhere z)) l), exp_plus, Q2R_1. ring.
Qed.
Lemma count_one i z : one_position z = true -> In z (slots i) -> count z (draws i (size S)) = 1%nat.
Proof.
  intros O I. destruct i, z; try discriminate; cbn in I; try (exfalso; intuition discriminate);
    cbn [draws]; rewrite ?count_cons, ?count_repeat; reflexivity.
Qed.
Lemma positions_ok pr i z n : holds pr -> positions pr i z = Some n -> den (penv par) n = INR (count z (draws i (size S))).
Proof.
  intros [_ [_ H]]. unfold positions. destruct (batch_size pr) as [[j nz]|]; [|discriminate]. specialize (H j nz eq_refl).
  pose proof (size_ok S) as Z.
  destruct i, z; try discriminate; intros K; apply Some_inj in K; subst n; cbn [draws]; rewrite ?count_cons, count_repeat;
    rewrite sub_ok, var_ok, konst_ok by apply penv_ok; cbn [penv]; rewrite H; cbn [same_slot scode Nat.eqb Nat.add];
    rewrite minus_INR by lia; unfold Q2R; cbn; field.
Qed.
Lemma whole_ok z x a : within (movable z) a = true -> within moved_there (emap to_whole a) = true ->
  den (env (alone S x)) (emap to_whole a) = den (env (Setting.add S z x (nobody S))) a.
Proof.
  intros A B. set (e := fun v => env (alone S x) (to_whole v)).
  transitivity (den e (emap to_whole a)).
  - apply (within_ok moved_there); [|exact B]. intros [y b sg|j nz] V; [|reflexivity].
    destruct y; try discriminate. destruct sg; try discriminate. destruct b; reflexivity.
  - transitivity (den e a).
    + apply emap_ok.
      * intros v V. unfold e. destruct v as [y [] sg|j nz]; cbn [to_whole invertible] in *; try (destruct y; discriminate); now apply env_ok.
      * intros [y [] sg|]; reflexivity.
      * intros [[] [] sg|]; reflexivity.
    + apply (within_ok (movable z)); [|exact A]. intros [y b sg|j nz] V; [|reflexivity]. unfold e.
      destruct b; cbn [movable] in V; try discriminate; apply same_slot_eq in V; subst y; destruct z, sg; reflexivity.
Qed.
Lemma adds_up_ok z v w : adds_up z v = true -> env w v = Sum (w z) (fun x => env (alone S x) (to_whole v)).
Proof.
  destruct v as [y b sg|]; [|discriminate]. destruct b; cbn [adds_up]; try discriminate; intros Q; apply same_slot_eq in Q; subst y;
    cbn [to_whole]; rewrite env_sum by easy; apply Sum_ext; intros x _; rewrite env_sum by easy; symmetry; apply Rplus_0_r.
Qed.
Lemma factors_ok z m l w : factors z m = Some l ->
  dmon (env w) m = fold_right (fun v acc => Sum (w z) (fun x => env (alone S x) v) * acc) 1 l.
Proof.
  revert l; induction m as [|[v k] m IH]; intros l; cbn [factors dmon].
  - intros H. apply Some_inj in H; subst l. reflexivity.
  - destruct (adds_up z v) eqn:A; [|discriminate]. pose proof (adds_up_ok z v w A) as V.
    assert (I : invertible v = false) by (destruct v as [[] [] ?|]; cbn in *; congruence).
    destruct k as [|[]|]; try discriminate.
    + destruct p; try discriminate. destruct (factors z m) as [r|]; [|discriminate].
      intros H. apply Some_inj in H; subst l. cbn [fold_right]. rewrite <- (IH r eq_refl), <- V. unfold power. rewrite I. change (Z.to_nat 2) with 2%nat. cbn [pow]. ring.
    + destruct (factors z m) as [r|]; [|discriminate].
      intros H. apply Some_inj in H; subst l. cbn [fold_right]. rewrite <- (IH r eq_refl), <- V, power_1. ring.
Qed.
Lemma one_slot_ok pr i m z t a : holds pr -> probability m = true -> In z (slots i) -> one_slot pr i m z t = Some a ->
  E S m (theta S) 0 (repeat z (count z (draws i (size S)))) (fun w => dterm (env w) t) = dside a.
Proof.
  intros P M I. unfold one_slot. destruct (one_position z) eqn:O.
  - rewrite (count_one i z O I). unfold guard. destruct (_ && _)%bool eqn:W; [|discriminate]. apply andb_prop in W as [W1 W2].
    intros H. apply Some_inj in H; subst a. cbn [Statements.dside dproduct Statements.datom]. rewrite one_ok.
    unfold mean, mean_at. cbn [draws repeat E]. rewrite Rmult_1_r, Rmult_1_l, Rplus_0_r. apply Sum_ext; intros x _. f_equal.
    change (Setting.add S Whole x (nobody S)) with (alone S x). rewrite (whole_ok z x [t] W1 W2). cbn [den]. ring.
  - destruct t as [[c k] [|? ?]]; [|discriminate]. destruct (positions pr i z) as [n|] eqn:Q; [|discriminate].
    apply (positions_ok pr i z n P) in Q. set (N := count z (draws i (size S))) in *.
    destruct (qz (Qred (c - 1))) eqn:C; [|discriminate]. apply qz_ok in C. rewrite Q2R_red, Q2R_minus, Q2R_1 in C.
    assert (C1 : Q2R c = 1) by lra.
    destruct (factors z k) as [l|] eqn:F; [|discriminate].
    assert (V : forall w, dterm (env w) (c, k, []) = fold_right (fun v acc => Sum (w z) (fun x => env (alone S x) v) * acc) 1 l).
    { intros w. cbn [dterm dlin]. rewrite C1, exp_0, (factors_ok z k l w F). ring. }
    rewrite (E_ext S m _ _ _ _ _ V).
    assert (One : forall v, mean S m Single (fun w => den (env w) (var_ v)) =
      Sum (support S m 0) (fun x => density S m (theta S) x * env (alone S x) v)).
    { intros v. unfold mean, mean_at. cbn [draws E]. apply Sum_ext; intros x _. f_equal.
      change (Setting.add S Whole x (nobody S)) with (alone S x). apply var_ok. }
    assert (Nm : normed m = true) by now destruct m.
    destruct l as [|u [|v [|? ?]]]; try discriminate; intros H; apply Some_inj in H; subst a;
      cbn [Statements.dside dproduct Statements.datom fold_right]; rewrite ?one_ok, ?One, ?Q.
    + rewrite E_const by exact Nm. ring.
    + rewrite (E_ext S m _ _ _ _ (fun w => Sum (w z) (fun x => env (alone S x) u))) by (intros; ring).
      rewrite first_moment by exact M. ring.
    + rewrite (E_ext S m _ _ _ _ (fun w => Sum (w z) (fun x => env (alone S x) u) * Sum (w z) (fun x => env (alone S x) v))) by (intros; ring).
      rewrite second_moment by exact M. rewrite mul_ok, sub_ok, one_ok, Q by apply penv_ok.
      replace (mean S m Single (fun w => den (env w) (mul (var_ u) (var_ v)))) with
        (Sum (support S m 0) (fun x => density S m (theta S) x * (env (alone S x) u * env (alone S x) v))); [ring|].
      unfold mean, mean_at. cbn [draws E]. apply Sum_ext; intros x _. f_equal.
      change (Setting.add S Whole x (nobody S)) with (alone S x). rewrite mul_ok, !var_ok by apply env_ok. reflexivity.
Qed.
Lemma by_slots_ok pr i m : holds pr -> probability m = true -> forall zs t a ds, NoDup zs ->
  (forall z, In z zs -> In z (slots i) /\ count z ds = count z (draws i (size S))) -> by_slots pr i m zs t = Some a ->
  E S m (theta S) 0 ds (fun w => dterm (env w) t) = dside a.
Proof.
  intros P M. assert (N : normed m = true) by now destruct m. assert (U : summed m = true) by now destruct m.
  induction zs as [|z zs IH]; intros t a ds D C; cbn [by_slots].
  - unfold guard. destruct (constant [t]) eqn:K; [|discriminate]. intros H. apply Some_inj in H; subst a.
    cbn [Statements.dside dproduct]. rewrite <- (E_const S m 0 ds (den (penv par) [t] * 1 + 0) N). apply E_ext; intros w.
    rewrite <- (constant_env [t] w K). cbn [den]. ring.
  - pose proof (fun w => cut_ok (env w) z t) as T. destruct (cut z t) as [b c]. cbn [fst snd] in T.
    destruct (one_slot pr i m z b) as [x|] eqn:X; [|discriminate]. destruct (by_slots pr i m zs c) as [y|] eqn:Y; [|discriminate].
    unfold guard. destruct (_ && _)%bool eqn:W; [|discriminate]. apply andb_prop in W as [W1 W2].
    intros H. apply Some_inj in H; subst a. rewrite stimes_ok by exact par_ok.
    apply NoDup_cons_iff in D as [D1 D2]. destruct (C z (or_introl eq_refl)) as [C1 C2].
    rewrite (E_ext S m _ _ _ _ (fun w => den (env w) [b] * den (env w) [c])) by (intros; rewrite T; cbn [den]; ring).
    rewrite (independent S m _ _ (same_slot z) ds _ _ U (speaks_within _ _ W1) (speaks_within _ _ W2)).
    f_equal.
    + rewrite filter_same, C2, <- (one_slot_ok pr i m z b x P M C1 X). apply E_ext; intros w. cbn [den]. ring.
    + rewrite <- (IH c y (filter (except (same_slot z)) ds) D2); [apply E_ext; intros w; cbn [den]; ring| |exact Y].
      intros u Hu. destruct (C u (or_intror Hu)) as [Cu1 Cu2]. split; [exact Cu1|]. rewrite <- Cu2. unfold count.
      rewrite filter_apart; [reflexivity|]. destruct (same_slot u z) eqn:Q; [apply same_slot_eq in Q; now subst|reflexivity].
Qed.

Theorem zero_of_ok pr known r z : holds pr -> List.Forall (fun a => dside a = 0) known ->
  zero_of pr known r = Some z -> dside z = 0.
Proof.
  intros P K. destruct r; cbn [zero_of]; unfold guard; intros H.
  - destruct (smooth L) eqn:Sm; [|discriminate]. apply Some_inj in H; subst z. apply same_ok. rewrite only_ok.
    cbn [Statements.datom]. rewrite (grad_ok i m L Sm). apply E_ext; intros w. now rewrite attach_ok.
  - apply Some_inj in H; subst z. apply same_ok. rewrite only_ok. cbn [Statements.datom]. apply E_ext; intros w.
    now rewrite attach_ok.
  - destruct (log_derivative_side l) as [b|] eqn:B; [|discriminate]. apply Some_inj in H; subst z. apply same_ok.
    cbn [Statements.datom]. apply is_derive_unique, log_derivative_ok, B.
  - destruct (summed m && summed n)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G1 G2]. apply same_ok. rewrite only_ok. cbn [Statements.datom]. unfold mean, mean_at.
    rewrite (change_of_measure S m n 0 _ (slots i) _ (slots_once i) (draws_in i (size S)) G1 G2). apply E_ext; intros w.
    rewrite mul_ok, tidy_ok, ratio_ok by first [easy|apply env_ok]. reflexivity.
  - destruct (among z0 i && avoids z0 c)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G1 G2]. rewrite only_ok. cbn [Statements.datom].
    transitivity (mean S Mq i (fun w => den (env w) c * Sum (w z0) (s S))).
    + apply E_ext; intros w. rewrite mul_ok, tidy_ok, var_ok by apply env_ok. unfold score. rewrite env_sum by easy. reflexivity.
    + rewrite (only_slot_ok z0 i Mq _ _ eq_refl (speaks_sum z0 (s S)) (speaks_within _ _ G2)).
      unfold mean, mean_at. rewrite slot_score_mean_zero. ring.
  - destruct (probability m && probability n && among z0 i && avoids z0 c)%bool eqn:G; [|discriminate].
    apply Some_inj in H; subst z. apply andb_prop in G as [G C]. apply andb_prop in G as [G _]. apply andb_prop in G as [G1 G2].
    assert (Sm : summed m = true) by now destruct m. assert (Sn : summed n = true) by now destruct n.
    apply same_ok. rewrite only_ok. cbn [Statements.datom].
    transitivity (mean S m i (fun w => den (env w) c * exp (Sum (w z0) (log_of n m)))).
    + apply E_ext; intros w. unfold ratio_at. rewrite mul_ok, tidy_ok, exp_ok, log_ratio_ok by first [easy|apply env_ok]. reflexivity.
    + rewrite (only_slot_ok z0 i m (fun w => exp (Sum (w z0) (log_of n m))) _ G1).
      * rewrite ratio_mean_one by assumption. ring.
      * intros w v A. now rewrite (A z0 (same_slot_refl z0)).
      * apply speaks_within, C.
  - destruct (normed m && constant c)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G C]. apply same_ok. rewrite (mean_constant i m c) by easy.
    cbn [Statements.dside dproduct]. ring.
  - destruct (probability m) eqn:M; [|discriminate]. destruct (by_slots pr i m (slots i) t) as [b|] eqn:B; [|discriminate].
    apply Some_inj in H; subst z. apply same_ok. cbn [Statements.datom].
    rewrite <- (by_slots_ok pr i m P M (slots i) t b (draws i (size S)) (slots_once i)); [| |exact B].
    + apply E_ext; intros w. cbn [den]. ring.
    + intros z Z. now split.
  - destruct (nth_error (equal_now pr) i) as [[a b]|] eqn:N; [|discriminate]. apply Some_inj in H; subst z.
    apply nth_error_In in N. rewrite app_ok, (minus_ok S par par_ok), (proj1 P _ _ N). ring.
  - destruct (nth_error (equal_always pr) i) as [[a b]|] eqn:N; [|discriminate]. apply Some_inj in H; subst z.
    apply nth_error_In in N. apply same_ok. rewrite only_ok. cbn [Statements.datom].
    apply Derive_ext. apply (proj1 (proj2 P) _ _ N).
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
