(* Completeness: E_q[c s] = 0 for all q, p, mu if and only if c is constant; solved for an unknown function g of k1.

   With softmax logits E_q[c s] is q_j (c_j - E_q c) along the logit of outcome j, and three outcomes reach any two
   values of k1 and w at the same q.  So dc/dk1 = dc/dw = 0, one of which says g^(n) = h^(n) for a known h, and g - h is
   a polynomial. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Rules Checker Softmax.
Import ListNotations.
Open Scope R_scope.

(* ---------- functions whose n-th derivative is 0 ---------- *)
Definition jets (g : nat -> R -> R) : Prop := forall d k, is_derive (g d) k (g (S d) k).
Fixpoint poly (n : nat) (a : nat -> R) (k : R) : R := match n with O => 0 | S m => poly m a k + a m * k ^ m end.
Definition integral (a : nat -> R) (c : R) (i : nat) : R := match i with O => c | S i => a i * / INR (S i) end.
Lemma integral_derive n a c k : is_derive (poly (S n) (integral a c)) k (poly n a k).
Proof.
  induction n as [|n IH].
  - apply (is_derive_ext (fun _ => c)); [intros; cbn; ring|apply derive_const].
  - change (poly (S n) a k) with (poly n a k + a n * k ^ n). apply derive_plus; [exact IH|].
    pose proof (derive_scal _ (a n * / INR (S n)) _ _ (is_derive_pow (fun k => k) (S n) k 1 (is_derive_id k))) as D.
    replace (a n * k ^ n) with (a n * / INR (S n) * (INR (S n) * 1 * k ^ pred (S n))); [exact D|].
    cbn [pred]. assert (INR (S n) <> 0) by (apply not_0_INR; lia). field. assumption.
Qed.
Lemma flat f : (forall k, is_derive f k 0) -> forall k, f k = f 0.
Proof.
  intros D k. destruct (Rtotal_order 0 k) as [L|[<-|L]]; [symmetry| reflexivity|];
    apply (eq_is_derive (V := R_NormedModule)); auto.
Qed.
Lemma poly_0 n a : poly (S n) a 0 = a O.
Proof.
  induction n as [|n IH]; [cbn; ring|]. change (poly (S n) a 0 + a (S n) * 0 ^ S n = a O).
  rewrite IH. cbn [pow]. ring.
Qed.
Theorem polynomial_of_jets n g : jets g -> (forall k, g n k = 0) -> exists a, forall k, g O k = poly n a k.
Proof.
  revert g; induction n as [|n IH]; intros g J Z; [now exists (fun _ => 0)|].
  destruct (IH (fun d => g (S d)) (fun d k => J (S d) k) Z) as [a A].
  exists (integral a (g O 0)). intros k.
  assert (F : forall k, is_derive (fun k => g O k + (-1) * poly (S n) (integral a (g O 0)) k) k 0).
  { intros u. replace 0 with (g 1%nat u + (-1) * poly n a u) by (rewrite A; ring).
    apply derive_plus; [apply J|apply derive_scal, integral_derive]. }
  pose proof (flat _ F k) as E. cbv beta in E. rewrite poly_0 in E. cbn [integral] in E. lra.
Qed.

(* ---------- what is told, and what it means ---------- *)
Record family := Family {
  coefficient : ep;          (* c: the equation says E_q[c s] = 0 *)
  along_w : bool;            (* is v below k1 or w? *)
  unit_of : ep;              (* unit dc/dv = g^(n) - h^(n) *)
  order : nat;               (* n *)
  known_part : ep;           (* h: the family is h(k1) + a_0 + a_1 k1 + ... *)
  constants : list nat }.    (* parameters that stand for a_0, a_1, ..., and for nothing else *)
Definition at_k (par : nat -> bool -> R) (k : R) (v : var) : R := match v with Par i nz => par i nz | _ => k end.
Definition of_k1 (S : setting) (g : nat -> R -> R) : Prop := forall d l x, fn S 0 d l x = g d (l - ln (p S x)).
Definition positives (par : nat -> bool -> R) (a : assumptions) : Prop := forall i, In i (positive a) -> 0 < par i true.
(* a smooth function of k1 solves the equation in all settings just where it is one of the family *)
Definition solved_by (a : assumptions) (c : part) (f : family) : Prop :=
  forall par g, (forall i, par i true <> 0) -> positives par a -> jets g ->
    (forall S, of_k1 S g -> satisfied S par a -> true_part S par c) <->
    exists b, forall k, g O k = den (at_k par k) (known_part f) + poly (order f) b k.

(* ---------- the check ---------- *)
Definition slope_k1 (v : var) : option mon :=
  match v with
  | Sample Whole K1 _ => Some []
  | Sample Whole (Fn i d) sg => Some [(Sample Whole (Fn i (S d)) sg, 1%Z)]
  | _ => None end.
Definition slope_w (v : var) : option mon := match v with Sample Whole (W | ToOld) _ => Some [] | _ => None end.
Definition dk1 : ep -> ep := derive_by slope_k1.
Definition condition (f : family) : ep := derive_by (if along_w f then slope_w else slope_k1) (coefficient f).
Fixpoint iter (n : nat) (a : ep) : ep := match n with O => a | S n => dk1 (iter n a) end.
Definition in_k1 (v : var) : bool := match v with Sample Whole K1 _ | Par _ _ => true | _ => false end.
Definition no_score (v : var) : bool := match v with Sample Whole Score _ => false | Sample Whole _ _ | Par _ _ => true | _ => false end.
Definition times_score (c : ep) : ep := mul (tidy c) (var_ (score Whole)).
Definition constant_of (f : family) (v : var) : bool :=
  match v with Par i false => existsb (Nat.eqb i) (constants f) | _ => false end.
Definition told (f : family) (v : var) : bool := negb (constant_of f v).
Definition free_part (f : family) : ep :=
  fold_right (fun '(i, j) acc => add [(1%Q, [(Par j false, 1%Z); (Sample Whole K1 false, Z.of_nat i)], [])] acc) []
    (combine (seq 0 (order f)) (constants f)).
Definition member (f : family) : ep := add (tidy (known_part f)) (free_part f).
Definition put_member (f : family) (v : var) : option ep :=
  match v with
  | Sample Whole (Fn O d) _ => if within in_k1 (iter d (member f)) then Some (iter d (member f)) else None
  | _ => None end.
Definition top (n : nat) : ep := var_ (Sample Whole (Fn 0 n) false).
Fixpoint distinct (l : list nat) : bool := match l with [] => true | i :: l => negb (existsb (Nat.eqb i) l) && distinct l end.
Definition family_ok (f : family) : bool :=
  distinct (constants f) && Nat.eqb (List.length (constants f)) (order f)
  && within in_k1 (known_part f) && within (told f) (known_part f) && within (told f) (coefficient f) && within no_score (coefficient f)
  && within in_k1 (iter (order f) (tidy (known_part f)))
  && equal (top (order f)) (add (iter (order f) (tidy (known_part f))) (mul (tidy (unit_of f)) (condition f)))
  && match subst (put_member f) (coefficient f) with Some c => constant (tidy c) | None => false end.
Definition solves (a : assumptions) (known : list side) (c : part) (f : family) : bool :=
  match assumed a, regions a, rel c, rows c, zeros (assumed a) known (proof c) with
  | Premises [] [] None [] [], [], Equal, [], Some z =>
      is_nil (normal (left c ++ minus (right c) ++ z ++ minus (only (Mean Single Mq (times_score (coefficient f)))))) && family_ok f
  | _, _, _, _, _ => false end.

(* ---------- soundness ---------- *)
Section Values.
Variable par : nat -> bool -> R.
Variable g : nat -> R -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Hypothesis g_ok : jets g.
(* a setting seen from one outcome: k1 = k, log q = l, and old is mu *)
Definition seen_from (l w k : R) (v : var) : R :=
  match v with
  | Sample Whole K1 _ => k | Sample Whole (W | ToOld) _ => w | Sample Whole LogQ _ => l | Sample Whole Length _ => 1
  | Sample Whole (Fn O d) _ => g d k | Sample _ _ _ | Named _ _ _ _ => 0 | Par i nz => par i nz end.
Definition seen (l : R) : R -> var -> R := seen_from l 0.
Lemma seen_ok l w k v : invertible v = true -> seen_from l w k v <> 0.
Proof. destruct v as [[] [] sg|i []|]; cbn; try discriminate; intros _; [lra|apply par_ok]. Qed.
Lemma slope_k1_inv v d : slope_k1 v = Some d -> invertible v = false.
Proof. destruct v as [[] []| |]; cbn; congruence. Qed.
Lemma seen_slope l w k v : is_derive (fun k => seen_from l w k v) k
  (match slope_k1 v with Some d => dmon (seen_from l w k) d | None => 0 end).
Proof.
  destruct v as [[] [| | | | | |i|[|i] d|] sg| |]; cbn [slope_k1 seen_from dmon]; try apply derive_const.
  - apply (is_derive_id (K := R_AbsRing)).
  - rewrite power_1, Rmult_1_r. apply g_ok.
  - rewrite power_1, Rmult_1_r. cbn [seen_from]. apply derive_const.
Qed.
Lemma seen_derive_k l a w k : is_derive (fun k => den (seen_from l w k) a) k (den (seen_from l w k) (dk1 a)).
Proof. apply (derive_by_ok slope_k1 slope_k1_inv (fun v k => seen_from l w k v)); [intros; now apply seen_ok|intros; apply seen_slope]. Qed.
Lemma seen_derive l a k : is_derive (fun k => den (seen l k) a) k (den (seen l k) (dk1 a)).
Proof. apply seen_derive_k. Qed.
Lemma seen_derive_w l a w k : is_derive (fun w => den (seen_from l w k) a) w (den (seen_from l w k) (derive_by slope_w a)).
Proof.
  apply (derive_by_ok slope_w) with (f := fun v w => seen_from l w k v).
  - intros [[] []| |]; cbn; congruence.
  - intros v u. apply seen_ok.
  - intros [[] [| | | | | |i|[|i] d|] sg| |]; cbn [slope_w seen_from dmon]; try apply derive_const; apply (is_derive_id (K := R_AbsRing)).
Qed.
Lemma seen_at_k l k a : within in_k1 a = true -> den (seen l k) a = den (at_k par k) a.
Proof. apply within_ok. now intros [[] []| |]. Qed.

(* three outcomes, of which two have the same q and any two values of k1 and w *)
Definition vec (a b c : R) (x : nat) : R := match x with O => a | 1%nat => b | _ => c end.
Lemma vec_pos a b c x : 0 < a -> 0 < b -> 0 < c -> 0 < vec a b c x.
Proof. destruct x as [|[|]]; auto. Qed.
Definition three : list nat := [0; 1; 2]%nat.
Lemma vec_sum a b c : Sum three (vec a b c) = a + b + c. Proof. cbn. ring. Qed.
Section Three.
Variables e k k' w w' : R.
Hypothesis e_pos : 0 < e.
Hypothesis e_small : e + e < 1.
Hypothesis p_small : e * exp (- k) + e * exp (- k') < 1.
Hypothesis mu_small : e * exp (- w) + e * exp (- w') < 1.
Definition b3 := vec e e (1 - (e + e)).
Definition beside (y z : R) := vec (e * exp (- y)) (e * exp (- z)) (1 - (e * exp (- y) + e * exp (- z))).
Definition p3 := beside k k'.
Definition mu3 := beside w w'.
Lemma b3_pos x : 0 < b3 x. Proof. apply vec_pos; lra. Qed.
Lemma b3_sum : Sum three b3 = 1. Proof. unfold b3. rewrite vec_sum. ring. Qed.
Lemma beside_pos y z x : e * exp (- y) + e * exp (- z) < 1 -> 0 < beside y z x.
Proof. intros H. apply vec_pos; [| |lra]; apply Rmult_lt_0_compat; auto; apply exp_pos. Qed.
Lemma beside_sum y z : Sum three (beside y z) = 1. Proof. unfold beside. rewrite vec_sum. ring. Qed.
Definition f3 (i d : nat) (l : R) (x : @segment nat) : R :=
  match i with O => g d (l - ln (product (fun _ => p3) (fst x) (snd x))) | _ => 0 end.
Lemma f3_diff i d l x : is_derive (fun l => f3 i d l x) l (f3 i (S d) l x).
Proof.
  destruct i; cbn [f3]; [|apply derive_const]. set (c := ln _).
  rewrite <- (Rmult_1_r (g (S d) (l - c))). apply (derive_comp (g d)); [apply g_ok|].
  apply (is_derive_ext (fun l => l + - c)); [intros; reflexivity|].
  replace 1 with (1 + 0) by ring. apply derive_plus; [apply (is_derive_id (K := R_AbsRing))|apply derive_const].
Qed.
Definition setting3 (u : nat -> R) : setting :=
  softmax nat (one_token three) 0 ltac:(discriminate) (fun i => [i]) ltac:(discriminate)
    (fun _ => b3) (fun _ => u) (fun _ => p3) (fun _ => mu3)
    (fun _ => b3_pos)
    (fun _ x => beside_pos k k' x p_small) (fun v => one_token_next three p3 v (beside_sum k k'))
    (fun _ x => beside_pos w w' x mu_small) (fun v => one_token_next three mu3 v (beside_sum w w'))
    (fun _ => mu3) (fun _ x => beside_pos w w' x mu_small) (fun v => one_token_next three mu3 v (beside_sum w w'))
    (fun _ _ _ => 0) (fun _ _ => 0) 2 (le_n 2) f3 f3_diff (fun _ _ _ _ => 0).
Lemma setting3_of_k1 u : of_k1 (setting3 u) g. Proof. intros d l x. reflexivity. Qed.
Lemma setting3_q u x : q0 (setting3 u) (sole x) = b3 x.
Proof. etransitivity; [apply softmax_q; intros v; apply (one_token_next three b3 v b3_sum)|]. cbn. ring. Qed.
Lemma setting3_p u x : p (setting3 u) (sole x) = p3 x. Proof. unfold p. cbn. ring. Qed.
Lemma setting3_mu u x : mu (setting3 u) (sole x) = mu3 x. Proof. unfold mu. cbn. ring. Qed.
Lemma setting3_old u x : old (setting3 u) (sole x) = mu3 x. Proof. unfold old. cbn. ring. Qed.
Lemma ln_ratio z : ln e - ln (e * exp (- z)) = z.
Proof. rewrite ln_mult, ln_exp by (auto; apply exp_pos). ring. Qed.
Definition at3 (x : nat) : var -> R := seen_from (ln (b3 x)) (ln (b3 x) - ln (mu3 x)) (ln (b3 x) - ln (p3 x)).
Lemma env3 u (x : nat) v : no_score v = true -> env (setting3 u) par (alone (setting3 u) (sole x)) v = at3 x v.
Proof.
  intros V. destruct v as [[] b sg|i nz|]; try discriminate; [|reflexivity].
  destruct b as [| | | | | |j|[|j] d|]; try discriminate; try reflexivity; rewrite env_sum by easy;
    (etransitivity; [apply Rplus_0_r|]); cbn [each]; rewrite ?setting3_q, ?setting3_p, ?setting3_mu, ?setting3_old; try reflexivity.
  - unfold given. cbn. ring.
  - etransitivity; [apply setting3_of_k1|]. now rewrite setting3_p.
Qed.
(* the gradient of E_q[c s] along the logit u *)
Lemma along_logit c u : within no_score c = true -> mean (setting3 u) Mq Single (fun w => den (env (setting3 u) par w) (times_score c)) =
  Sum three (fun x => b3 x * (den (at3 x) c * (u x - Sum three (fun y => b3 y * u y)))).
Proof.
  intros V. unfold mean, mean_at. cbn [draws E spread stepwise support].
  rewrite (one_token_outcomes (setting3 u) three eq_refl eq_refl), Sum_map. symmetry.
  apply (Sum_ext three). intros x _. f_equal; [symmetry; apply setting3_q|].
  change (Setting.add (setting3 u) Whole (sole x) (nobody (setting3 u))) with (alone (setting3 u) (sole x)).
  unfold times_score. rewrite mul_ok, tidy_ok, var_ok by apply (env_ok _ _ par_ok).
  rewrite (within_ok no_score _ (at3 x) (env3 u x) c V). f_equal.
  unfold score. rewrite env_sum by easy. etransitivity; [|symmetry; apply Rplus_0_r]. symmetry.
  transitivity (s (setting3 u) (sole x)); [reflexivity|]. unfold setting3, sole. rewrite softmax_score by (intros v; apply (one_token_next three b3 v b3_sum)). reflexivity.
Qed.
Lemma two_alike (C : nat -> R) :
  (forall u, Sum three (fun x => b3 x * (C x * (u x - Sum three (fun y => b3 y * u y)))) = 0) -> C O = C 1%nat.
Proof.
  intros K. pose proof (K (vec 1 0 0)) as K0. pose proof (K (vec 0 1 0)) as K1. unfold three, b3 in K0, K1. cbn [Sum vec] in K0, K1.
  assert (D : e * (C O - C 1%nat) = 0) by lra.
  apply Rmult_integral in D as [D|D]; lra.
Qed.
Lemma at3_0 c : den (at3 0) c = den (seen_from (ln e) w k) c.
Proof. unfold at3, mu3, p3, beside; cbn [b3 vec]; now rewrite !ln_ratio. Qed.
Lemma at3_1 c : den (at3 1) c = den (seen_from (ln e) w' k') c.
Proof. unfold at3, mu3, p3, beside; cbn [b3 vec]; now rewrite !ln_ratio. Qed.
Lemma same_value c : within no_score c = true ->
  (forall u, mean (setting3 u) Mq Single (fun w => den (env (setting3 u) par w) (times_score c)) = 0) ->
  den (seen_from (ln e) w k) c = den (seen_from (ln e) w' k') c.
Proof.
  intros V H. rewrite <- at3_0, <- at3_1. apply (two_alike (fun x => den (at3 x) c)). intros u. rewrite <- along_logit by exact V. apply H.
Qed.
End Three.

(* dc/dk1 = dc/dw = 0 where E_q[c s] = 0 in all settings *)
Definition vanishing (c : ep) : Prop :=
  forall S, of_k1 S g -> mean S Mq Single (fun w => den (env S par w) (times_score c)) = 0.
Lemma small k : let e := / (3 + 2 * exp (- (k - 1)) + 2 * exp 1) in
  0 < e /\ e + e < 1 /\ (forall z, k - 1 < z -> e * exp (- k) + e * exp (- z) < 1) /\
  (forall z, -1 < z -> e * exp (- 0) + e * exp (- z) < 1).
Proof.
  intros e. set (d := 3 + 2 * exp (- (k - 1)) + 2 * exp 1) in e. pose proof (exp_pos (- (k - 1))) as P. pose proof (exp_pos 1) as P1.
  assert (D : 0 < e) by (apply Rinv_0_lt_compat; unfold d; lra).
  assert (De : e * d = 1) by (apply Rinv_l; unfold d; lra).
  assert (M : forall u z, u <= z -> exp (- z) <= exp (- u)).
  { intros u z [Z| <-]; [left; apply exp_increasing; lra|lra]. }
  unfold d in De. clearbody e. clear d. split; [exact D|]. split; [nra|]. split; intros z Z.
  - pose proof (M (k - 1) k ltac:(lra)). pose proof (M (k - 1) z ltac:(lra)). nra.
  - pose proof (M (-1) 0 ltac:(lra)) as M1. pose proof (M (-1) z ltac:(lra)) as M2. replace (- -1) with 1 in M1, M2 by lra. nra.
Qed.
Lemma constant_near F x y : is_derive F x y -> (forall z, x - 1 < z < x + 1 -> F z = F x) -> y = 0.
Proof.
  intros D H. apply (eq_trans (eq_sym (is_derive_unique _ _ _ D))). apply is_derive_unique.
  apply (is_derive_ext_loc (fun _ => F x)); [|apply derive_const].
  exists (mkposreal 1 Rlt_0_1). intros z Z. unfold ball in Z. cbn in Z. unfold AbsRing_ball, abs, minus, plus, opp in Z. cbn in Z.
  apply Rabs_def2 in Z. symmetry. apply H. lra.
Qed.
Lemma derivative_zero (b : bool) c k : within no_score c = true -> vanishing c ->
  exists l, den (seen l k) (derive_by (if b then slope_w else slope_k1) c) = 0.
Proof.
  intros Ns H. destruct (small k) as [D [S1 [S2 S3]]]. set (e := / _) in *. exists (ln e).
  assert (N : forall w z, -1 < w -> k - 1 < z -> den (seen_from (ln e) w z) c = den (seen_from (ln e) 0 k) c).
  { intros w z W Z. symmetry. apply (same_value e k z 0 w D S1 (S2 z Z) (S3 w W) c Ns). intros u. apply H, setting3_of_k1. }
  destruct b; [apply (constant_near _ _ _ (seen_derive_w (ln e) c 0 k))|apply (constant_near _ _ _ (seen_derive (ln e) c k))];
    intros z Z; apply N; lra.
Qed.

Variable f : family.
Hypothesis f_ok : family_ok f = true.
Notation n := (order f). Notation h := (tidy (known_part f)).
Lemma parts_ok : distinct (constants f) = true /\ List.length (constants f) = n /\ within in_k1 (known_part f) = true
  /\ within (told f) (known_part f) = true /\ within (told f) (coefficient f) = true
  /\ within no_score (coefficient f) = true /\ within in_k1 (iter n h) = true
  /\ equal (top n) (add (iter n h) (mul (tidy (unit_of f)) (condition f))) = true
  /\ exists c, subst (put_member f) (coefficient f) = Some c /\ constant (tidy c) = true.
Proof.
  unfold family_ok in f_ok. repeat (apply andb_prop in f_ok as [f_ok ?]).
  destruct (subst _ _) as [c|]; [|discriminate]. repeat split; auto.
  - now apply Nat.eqb_eq.
  - now exists c.
Qed.
(* the equation leaves no other *)
Lemma only_family : vanishing (coefficient f) ->
  exists b, forall k, g O k = den (at_k par k) (known_part f) + poly n b k.
Proof.
  intros H. destruct parts_ok as [_ [_ [W [_ [_ [Ns [Wn [Q _]]]]]]]].
  set (G := fun d k => g d k + (-1) * den (seen 0 k) (iter d h)).
  destruct (polynomial_of_jets n G) as [b B].
  - intros d k. apply derive_plus; [apply g_ok|apply derive_scal, seen_derive].
  - intros k. destruct (derivative_zero (along_w f) _ k Ns H) as [l Z]. fold (condition f) in Z. unfold G.
    pose proof (equal_ok (seen l k) (seen_ok l 0 k) _ _ Q) as T. unfold top in T.
    rewrite var_ok, add_ok, mul_ok, Z in T by apply seen_ok.
    change (seen l k (Sample Whole (Fn 0 n) false)) with (g n k) in T. rewrite T.
    rewrite (seen_at_k l k _ Wn), (seen_at_k 0 k _ Wn). ring.
  - exists b. intros k. specialize (B k). unfold G in B. cbn [iter] in B.
    rewrite tidy_ok, seen_at_k in B by first [exact W|apply seen_ok]. lra.
Qed.
End Values.

(* ---------- the family solves it ---------- *)
(* parameters with values for the constants *)
Fixpoint assign (par : nat -> bool -> R) (l : list nat) (j : nat) (b : nat -> R) (i : nat) (nz : bool) : R :=
  match l with [] => par i nz | c :: l => if Nat.eqb i c && negb nz then b j else assign par l (S j) b i nz end.
Lemma assign_true par l j b i : assign par l j b i true = par i true.
Proof. revert j; induction l as [|c l IH]; intros j; cbn [assign]; [easy|]. now rewrite Bool.andb_false_r. Qed.
Lemma assign_other par l j b i : existsb (Nat.eqb i) l = false -> assign par l j b i false = par i false.
Proof.
  revert j; induction l as [|c l IH]; intros j; cbn [assign existsb]; [easy|]. intros H.
  apply Bool.orb_false_iff in H as [-> H]. cbn [andb]. now apply IH.
Qed.
Lemma assign_nth par l j b i c : distinct l = true -> nth_error l i = Some c -> assign par l j b c false = b (j + i)%nat.
Proof.
  revert i j; induction l as [|d l IH]; intros i j; [now destruct i|]. cbn [distinct assign]. intros D N.
  apply andb_prop in D as [D1 D2]. destruct i as [|i]; cbn in N.
  - injection N as ->. rewrite Nat.eqb_refl, Nat.add_0_r. reflexivity.
  - destruct (Nat.eqb_spec c d) as [->|_].
    + apply Bool.negb_true_iff in D1. apply nth_error_In in N.
      assert (existsb (Nat.eqb d) l = true) by (apply existsb_exists; exists d; split; [exact N|apply Nat.eqb_refl]). congruence.
    + cbn [andb]. rewrite (IH i (S j) D2 N). f_equal. lia.
Qed.
Lemma free_sum env k b l j : (forall v, invertible v = true -> env v <> 0) -> env (Sample Whole K1 false) = k ->
  (forall i c, nth_error l i = Some c -> env (Par c false) = b (j + i)%nat) ->
  den env (fold_right (fun '(i, j) acc => add [(1%Q, [(Par j false, 1%Z); (Sample Whole K1 false, Z.of_nat i)], [])] acc) []
    (combine (seq j (List.length l)) l)) = poly (j + List.length l) b k - poly j b k.
Proof.
  intros Inv K. revert j; induction l as [|c l IH]; intros j H; cbn [List.length seq combine fold_right].
  - rewrite Nat.add_0_r. cbn [den]. ring.
  - rewrite add_ok, IH by first [exact Inv|intros i d N; rewrite (H (S i) d N); f_equal; lia].
    cbn [den dterm dmon dlin]. rewrite exp_0, Q2R_1, power_1, K, (H O c eq_refl), Nat.add_0_r, Nat.add_succ_r.
    unfold power. cbn [invertible]. rewrite Nat2Z.id. change (S j + List.length l)%nat with (S (j + List.length l)).
    cbn [poly]. ring.
Qed.

Section Family.
Variable par : nat -> bool -> R.
Variable g : nat -> R -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Hypothesis g_ok : jets g.
Variable f : family.
Hypothesis f_ok : family_ok f = true.
Variable b : nat -> R.
Hypothesis b_ok : forall k, g O k = den (at_k par k) (known_part f) + poly (order f) b k.
Definition par' := assign par (constants f) 0 b.
Lemma par'_ok i : par' i true <> 0. Proof. unfold par'. rewrite assign_true. apply par_ok. Qed.
Lemma told_par i nz : told f (Par i nz) = true -> par' i nz = par i nz.
Proof.
  unfold told, constant_of, par'. destruct nz; [intros; apply assign_true|]. intros H.
  apply Bool.negb_true_iff in H. now apply assign_other.
Qed.
Let ok := parts_ok f f_ok.
Lemma member_value k : g O k = den (seen par' g 0 k) (member f).
Proof.
  destruct ok as [D [L [W [T _]]]]. unfold member, free_part.
  rewrite add_ok, tidy_ok, <- L, (free_sum _ k b) by
    first [apply (seen_ok par' g par'_ok)|reflexivity|intros i c N; exact (assign_nth par _ 0 b i c D N)].
  rewrite b_ok, (seen_at_k par' g 0 k _ W), L, Nat.add_0_l. cbn [poly].
  rewrite (within_ok (told f) (at_k par' k) (at_k par k) (fun v => match v with Par i nz => told_par i nz | _ => fun _ => eq_refl end) _ T).
  ring.
Qed.
Lemma jet_value d k : g d k = den (seen par' g 0 k) (iter d (member f)).
Proof.
  revert k; induction d as [|d IH]; intros k; [apply member_value|]. cbn [iter].
  rewrite <- (is_derive_unique _ _ _ (seen_derive par' g par'_ok g_ok 0 (iter d (member f)) k)).
  rewrite <- (is_derive_unique _ _ _ (g_ok d k)). apply Derive_ext. exact IH.
Qed.
Lemma solved S : of_k1 S g -> mean S Mq Single (fun w => den (env S par w) (times_score (coefficient f))) = 0.
Proof.
  intros G. destruct ok as [_ [_ [_ [_ [T [_ [_ [_ [c [C1 C2]]]]]]]]]].
  unfold mean, mean_at. cbn [draws E spread stepwise support].
  rewrite (Sum_ext _ _ (fun x => den (penv par') (tidy c) * (q0 S x * s S x))).
  - rewrite Sum_scal, score_mean_zero. ring.
  - intros x _. change (Setting.add S Whole x (nobody S)) with (alone S x).
    unfold times_score. rewrite mul_ok, tidy_ok, var_ok by apply (env_ok S par par_ok).
    replace (den (env S par (alone S x)) (coefficient f)) with (den (penv par') (tidy c)).
    + unfold score. rewrite env_sum by easy. cbn [density]. unfold q0.
      replace (Sum (alone S x Whole) _) with (s S x) by (symmetry; apply Rplus_0_r). ring.
    + rewrite <- (within_ok is_par (env S par' (alone S x)) (penv par') (env_penv S par' (alone S x)) _ C2).
      rewrite tidy_ok by apply (env_ok S par' par'_ok).
      rewrite (within_ok (told f) (env S par (alone S x)) (env S par' (alone S x))) with (a := coefficient f);
        [|intros [[] []|i nz|? ? []] H; try reflexivity; symmetry; now apply told_par|exact T].
      apply (subst_ok (put_member f) (env S par' (alone S x)) (env_ok S par' par'_ok (alone S x)) (env S par' (alone S x))); [| |exact C1].
      * intros v. destruct v as [[] [| | | | | |i|[|i] d|] sg| |]; try reflexivity. cbn [put_member].
        destruct (within in_k1 (iter d (member f))) eqn:W; [|reflexivity].
        transitivity (g d (ln (q0 S x) - ln (p S x))).
        { rewrite env_sum by easy. etransitivity; [apply Rplus_0_r|]. cbn [each]. apply G. }
        rewrite jet_value. symmetry. apply (within_ok in_k1); [|exact W].
        intros [[] [] sg'| |]; try discriminate; intros _; [|reflexivity].
        rewrite env_sum by easy. etransitivity; [apply Rplus_0_r|]. reflexivity.
      * intros v a. destruct v as [[] [| | | | | |i|[|i] d|] sg| |]; cbn [put_member]; try discriminate. reflexivity.
Qed.
End Family.

Theorem solves_ok a known c f : solves a known c f = true ->
  (forall S par, (forall i, par i true <> 0) -> satisfied S par a -> List.Forall (fun z => dside S par z = 0) known) ->
  solved_by a c f.
Proof.
  unfold solves. destruct a as [[now always size defs quiet] pos reg]. cbn [assumed regions]. destruct now; [|discriminate].
  destruct always; [|discriminate]. destruct size; [discriminate|]. destruct defs; [|discriminate]. destruct quiet; [|discriminate]. destruct reg; [|discriminate]. destruct (rel c) eqn:Rc; [|discriminate].
  destruct (rows c); [|discriminate]. destruct (zeros _ known (proof c)) as [z|] eqn:Z; [|discriminate].
  intros H K par g P Pos J. apply andb_prop in H as [H F].
  assert (Sat : forall S, satisfied S par (Assume (Premises [] [] None [] []) pos [])) by (intros S; apply satisfied_free; easy).
  assert (T : forall S, true_part S par c <-> mean S Mq Single (fun w => den (env S par w) (times_score (coefficient f))) = 0).
  { intros S. apply (nil_ok S par P) in H. rewrite !app_ok, !(minus_ok S par P), (only_ok S par) in H.
    rewrite (zeros_ok S par P _ _ _ _ (proj1 (Sat S)) (K S par P (Sat S)) Z) in H.
    unfold true_part. rewrite Rc. cbn [datom] in H. split; intros E; lra. }
  split.
  - intros A. apply (only_family par g P J f F). intros S G. apply T. now apply A.
  - intros [b B] S G _. apply T. exact (solved par g P J f F b B S G).
Qed.
