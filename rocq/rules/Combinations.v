(* E_q[c s] is no combination of grad KL(q||p), grad KL(p||q) and grad E_q[h(R, A)].

   Were it x, y and h of them in all settings, c - x k1 + y r would be constant in k1 and w, as in Completeness.v.  A
   derivative along w, or d^3/dk1^3 + d^2/dk1^2, leaves nothing of 1, k1 and r = exp(-k1); what it leaves of c, derived
   further, is then 0.  A single term is not. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Rules Checker Softmax Completeness.
Import ListNotations.
Open Scope R_scope.

Definition k1_ : ep := var_ (Sample Whole K1 false).
Definition r_ : ep := exp_ [((-1)%Q, [(Sample Whole K1 false, 1%Z)])].
Definition KL_reverse : list gterm := [(one, Some (Single, Mq, k1_))].
Definition KL_forward : list gterm := [(one, Some (Single, Mp, opp k1_))].
Definition reward_gradient (S : setting) (h : R -> R -> R) : R :=
  Derive (fun t => Sum (outcomes S) (fun x => q S t x * h (given S 0 x) (any S 0 [x]))) (theta S).
Definition no_combination (a : assumptions) (c : part) : Prop :=
  forall par, (forall i, par i true <> 0) -> positives par a -> forall x y h,
    ~ (forall S, satisfied S par a -> dside S par (left c) - dside S par (right c) =
        x * datom S par (Gradient KL_reverse) + y * datom S par (Gradient KL_forward) + reward_gradient S h).

(* ---------- the check ---------- *)
Record witness := Witness {
  scored : ep;            (* c *)
  first_w : bool;         (* is c derived along w first, or by d^3/dk1^3 + d^2/dk1^2? *)
  further : list bool }.  (* and then along w (true) or k1 *)
Definition dw : ep -> ep := derive_by slope_w.
Definition left_over (x : witness) : ep :=
  fold_left (fun a w => if w : bool then dw a else dk1 a) (further x)
    (if first_w x then dw (scored x) else add (iter 3 (scored x)) (iter 2 (scored x))).
Definition never_zero (a : ep) : bool :=
  match a with
  | [(c, m, _)] => negb (qz c) && forallb (fun '(v, _) => match v with Par _ nz => nz | _ => false end) m
  | _ => false end.
Definition independent_of_all (a : assumptions) (known : list side) (c : part) (x : witness) : bool :=
  match assumed a, regions a, rel c, rows c, zeros (assumed a) known (proof c) with
  | Premises [] [] None [] [], [], Equal, [], Some z =>
      is_nil (normal (left c ++ minus (right c) ++ z ++ minus (only (Mean Single Mq (times_score (scored x))))))
      && within no_score (scored x) && never_zero (left_over x)
  | _, _, _, _, _ => false end.

(* ---------- soundness ---------- *)
(* the two gradients as score forms, by the checker itself *)
Definition less : side := [(opp one, [])].
Definition two_gradients : list part :=
  [Part (only (Gradient KL_reverse)) (only (Mean Single Mq (times_score k1_))) Equal []
     [(less, LogDerivative KL_reverse); (less, ChainRule Single Mq k1_); (less, ScoreMeanZero Single Whole one)];
   Part (only (Gradient KL_forward)) (minus (only (Mean Single Mq (times_score r_)))) Equal []
     [(less, LogDerivative KL_forward); (less, ChainRule Single Mp (opp k1_));
      (less, ChangeOfMeasure Single Mp Mq (attach (derivative (opp k1_))))]].
Lemma two_gradients_accepted : accept (Assume (Premises [] [] None [] []) [] []) two_gradients = true.
Proof. now vm_compute. Qed.
Lemma gradients_ok S par : (forall i, par i true <> 0) ->
  datom S par (Gradient KL_reverse) = mean S Mq Single (fun w => den (env S par w) (times_score k1_)) /\
  datom S par (Gradient KL_forward) = - mean S Mq Single (fun w => den (env S par w) (times_score r_)).
Proof.
  intros P. assert (A : satisfied S par (Assume (Premises [] [] None [] []) [] [])) by (apply satisfied_free; easy).
  pose proof (accept_sound _ _ two_gradients_accepted S par P A) as T. unfold two_gradients in T.
  pose proof (List.Forall_inv T) as T1. pose proof (List.Forall_inv (List.Forall_inv_tail T)) as T2. unfold true_part in T1, T2. cbn [rel left right] in T1, T2.
  rewrite (minus_ok S par P) in T2. rewrite !(only_ok S par) in T1, T2. now split.
Qed.

Section Values.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Definition nothing (_ : nat) (_ : R) : R := 0.
Lemma nothing_ok : jets nothing. Proof. intros d k. apply derive_const. Qed.
Notation seen_from := (seen_from par nothing).
Lemma no_reward S h c : (forall x, h (given S 0 x) (any S 0 [x]) = c) -> reward_gradient S h = 0.
Proof.
  intros H. unfold reward_gradient. rewrite (Derive_ext _ (fun _ => c)); [apply Derive_const|]. intros t.
  rewrite (Sum_ext _ _ (fun x => c * q S t x)) by (intros x _; rewrite H; ring). rewrite Sum_scal, q_sum. ring.
Qed.
Lemma sum_nothing {A} (u v : list A) : sum (fun _ _ => 0) u v = 0.
Proof. revert u; induction v as [|a v IH]; intros u; cbn [sum]; [reflexivity|]. rewrite IH. ring. Qed.

Section Combined.
Variables (c : ep) (x y : R) (h : R -> R -> R).
Hypothesis Ns : within no_score c = true.
Hypothesis combined : forall S, mean S Mq Single (fun w => den (env S par w) (times_score c)) =
  x * datom S par (Gradient KL_reverse) + y * datom S par (Gradient KL_forward) + reward_gradient S h.
Definition rest (l w k : R) : R := den (seen_from l w k) c - x * k + y * exp (- k).
Lemma constant_rest : exists l, forall w k, -1 < w -> -1 < k -> rest l w k = rest l 0 0.
Proof.
  destruct (small 0) as [D [S1 [S2 S3]]]. set (e := / _) in *. exists (ln e). intros w k W K. symmetry.
  assert (K' : 0 - 1 < k) by lra.
  set (C := fun z a => den (at3 par nothing e 0 k 0 w z) a).
  assert (V : forall l w k, den (seen_from l w k) k1_ = k /\ den (seen_from l w k) r_ = exp (- k)).
  { intros l w' k'. unfold k1_, r_. rewrite var_ok, exp_ok by (apply seen_ok, par_ok). cbn [dlin dmon]. rewrite power_1, Q2R_m1.
    split; [reflexivity|]. f_equal. cbn. ring. }
  assert (Re : forall l w k, rest l w k = den (seen_from l w k) c - x * den (seen_from l w k) k1_ + y * den (seen_from l w k) r_).
  { intros l w' k'. destruct (V l w' k') as [-> ->]. reflexivity. }
  rewrite !Re, <- !(at3_0 par nothing e 0 k 0 w), <- !(at3_1 par nothing e 0 k 0 w) by assumption.
  apply (two_alike e D (fun z => C z c - x * C z k1_ + y * C z r_)). intros u.
  pose proof (combined (setting3 nothing nothing_ok e 0 k 0 w D S1 (S2 k K') (S3 w W) u)) as H.
  destruct (gradients_ok (setting3 nothing nothing_ok e 0 k 0 w D S1 (S2 k K') (S3 w W) u) par par_ok) as [G1 G2].
  rewrite G1, G2, (no_reward _ h (h 0 0)) in H.
  2:{ intros z. unfold given. cbn [paid setting3 softmax any]. now rewrite sum_nothing. }
  rewrite !(along_logit par nothing par_ok nothing_ok) in H by (reflexivity || exact Ns).
  unfold three in *. cbn [Sum] in *. unfold C. lra.
Qed.
End Combined.

(* nothing left where w and k1 are above -1 *)
Definition vanishes (l : R) (a : ep) : Prop := forall w k, -1 < w -> -1 < k -> den (seen_from l w k) a = 0.
Lemma flat_above F k d : -1 < k -> is_derive F k d -> (forall z, -1 < z -> F z = F k) -> d = 0.
Proof.
  intros K D H. rewrite <- (is_derive_unique _ _ _ D). apply is_derive_unique. apply (is_derive_ext_loc (fun _ => F k)); [|apply derive_const].
  assert (P : 0 < k + 1) by lra. exists (mkposreal _ P). intros z Z. unfold ball in Z. cbn in Z.
  unfold AbsRing_ball, abs, minus, plus, opp in Z. cbn in Z. apply Rabs_def2 in Z. symmetry. apply H. lra.
Qed.
Lemma seen_exp c k : is_derive (fun k => c * exp (- k)) k (- (c * exp (- k))).
Proof. auto_derive; [easy|]. ring. Qed.
Lemma vanishes_w l a : vanishes l a -> vanishes l (dw a).
Proof.
  intros V w k W K. apply (flat_above _ w _ W (seen_derive_w par nothing par_ok l a w k)). intros z Z. now rewrite !V.
Qed.
Lemma vanishes_k l a : vanishes l a -> vanishes l (dk1 a).
Proof.
  intros V w k W K. apply (flat_above _ k _ K (seen_derive_k par nothing par_ok nothing_ok l a w k)). intros z Z. now rewrite !V.
Qed.
Lemma left_over_vanishes x l : vanishes l (if first_w x then dw (scored x) else add (iter 3 (scored x)) (iter 2 (scored x))) ->
  vanishes l (left_over x).
Proof.
  unfold left_over. generalize (if first_w x then dw (scored x) else add (iter 3 (scored x)) (iter 2 (scored x))) as a.
  induction (further x) as [|[] ops IH]; intros a V; cbn [fold_left]; [exact V| |]; apply IH; [now apply vanishes_w|now apply vanishes_k].
Qed.
Lemma never_zero_ok e a : (forall i, e (Par i true) <> 0) -> never_zero a = true -> den e a <> 0.
Proof.
  intros P. destruct a as [|[[c m] f] [|]]; try discriminate. cbn [never_zero]. intros H. apply andb_prop in H as [C M].
  cbn [den dterm]. rewrite Rplus_0_r. apply Rmult_integral_contrapositive_currified; [apply Rmult_integral_contrapositive_currified|].
  - unfold qz in C. apply negb_true_iff, Z.eqb_neq in C. unfold Q2R. apply Rmult_integral_contrapositive_currified.
    + intros Z. apply C. now apply eq_IZR in Z.
    + apply Rinv_neq_0_compat. apply IZR_neq. discriminate.
  - clear C. induction m as [|[v k] m IH]; cbn [dmon forallb] in *; [lra|]. apply andb_prop in M as [M1 M2].
    apply Rmult_integral_contrapositive_currified; [|now apply IH]. destruct v as [|i []|]; try discriminate.
    unfold power. cbn [invertible]. apply powerRZ_NOR, P.
  - apply Rgt_not_eq, exp_pos.
Qed.
Lemma no_witness x a b h : within no_score (scored x) = true -> never_zero (left_over x) = true ->
  ~ (forall S, mean S Mq Single (fun w => den (env S par w) (times_score (scored x))) =
       a * datom S par (Gradient KL_reverse) + b * datom S par (Gradient KL_forward) + reward_gradient S h).
Proof.
  intros Ns Nz H. set (c := scored x) in *. destruct (constant_rest c a b h Ns H) as [l L].
  assert (Re : forall w k, -1 < w -> -1 < k -> den (seen_from l w k) c = rest c a b l 0 0 + a * k + - b * exp (- k)).
  { intros w k W K. pose proof (L w k W K) as E. unfold rest at 1 in E. lra. }
  set (r0 := rest c a b l 0 0) in Re. clearbody r0.
  assert (V : vanishes l (left_over x)); [|apply (never_zero_ok (seen_from l 0 0) _ par_ok Nz); apply V; lra].
  apply left_over_vanishes. fold c. destruct (first_w x).
  - intros w k W K. apply (flat_above _ w _ W (seen_derive_w par nothing par_ok l c w k)). intros z Z. now rewrite !Re.
  - intros w k W K. rewrite add_ok by apply seen_ok, par_ok. cbn [iter].
    assert (D1 : forall k, -1 < k -> den (seen_from l w k) (dk1 c) = a + b * exp (- k)).
    { intros u U. pose proof (seen_derive_k par nothing par_ok nothing_ok l c w u) as D.
      assert (A : is_derive (fun k => a * k + - b * exp (- k)) u (a * 1 + - (- b * exp (- u)))) by
        (apply derive_plus; [apply derive_scal, (is_derive_id (K := R_AbsRing))|apply seen_exp]).
      pose proof (flat_above _ u _ U (derive_plus _ _ _ _ _ D (derive_scal _ (-1) _ _ A))) as F. cbv beta in F.
      enough (den (seen_from l w u) (dk1 c) + -1 * (a * 1 + - (- b * exp (- u))) = 0) by lra. apply F.
      intros z Z. rewrite !Re by assumption. lra. }
    assert (D2 : forall k, -1 < k -> den (seen_from l w k) (dk1 (dk1 c)) = - (b * exp (- k))).
    { intros u U. pose proof (seen_derive_k par nothing par_ok nothing_ok l (dk1 c) w u) as D.
      pose proof (flat_above _ u _ U (derive_plus _ _ _ _ _ D (derive_scal _ (-1) _ _ (seen_exp b u)))) as F. cbv beta in F.
      enough (den (seen_from l w u) (dk1 (dk1 c)) + -1 * - (b * exp (- u)) = 0) by lra. apply F.
      intros z Z. rewrite !D1 by assumption. lra. }
    rewrite (D2 k K). pose proof (seen_derive_k par nothing par_ok nothing_ok l (dk1 (dk1 c)) w k) as D.
    pose proof (flat_above _ k _ K (derive_plus _ _ _ _ _ D (seen_exp b k))) as F. cbv beta in F.
    enough (den (seen_from l w k) (dk1 (dk1 (dk1 c))) + - (b * exp (- k)) = 0) by lra. apply F.
    intros z Z. rewrite !D2 by assumption. lra.
Qed.
End Values.

Theorem independent_ok a known c x : independent_of_all a known c x = true ->
  (forall S par, (forall i, par i true <> 0) -> satisfied S par a -> List.Forall (fun z => dside S par z = 0) known) ->
  no_combination a c.
Proof.
  unfold independent_of_all. destruct a as [[now always size defs quiet] pos reg]. cbn [assumed regions]. destruct now; [|discriminate].
  destruct always; [|discriminate]. destruct size; [discriminate|]. destruct defs; [|discriminate]. destruct quiet; [|discriminate]. destruct reg; [|discriminate]. destruct (rel c); [|discriminate].
  destruct (rows c); [|discriminate]. destruct (zeros _ known (proof c)) as [z|] eqn:Z; [|discriminate].
  intros H K par P Pos a b h E. apply andb_prop in H as [H Nz]. apply andb_prop in H as [H Ns].
  apply (no_witness par P x a b h Ns Nz). intros S.
  assert (Sat : satisfied S par (Assume (Premises [] [] None [] []) pos [])) by (apply satisfied_free; easy).
  rewrite <- (E S Sat). apply (nil_ok S par P) in H. rewrite !app_ok, !(minus_ok S par P), (only_ok S par) in H.
  rewrite (zeros_ok S par P _ _ _ _ (proj1 Sat) (K S par P Sat) Z) in H. cbn [datom] in H. lra.
Qed.
